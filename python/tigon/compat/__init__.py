"""Other libraries' names for Tigon's operators."""
