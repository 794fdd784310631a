"""Files: written whole, locked, checked, and read without trust in what they hold."""
