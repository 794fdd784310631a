"""A run: its settings, its loop, its folder, its guard."""
