"""What any engine with real sites needs."""
