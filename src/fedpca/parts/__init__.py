"""What methods are made of: plain functions and frozen values, one job each."""
