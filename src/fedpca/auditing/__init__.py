"""Whose labels are wrong, how sure that is, and which: clients judged by models that never saw their labels."""
