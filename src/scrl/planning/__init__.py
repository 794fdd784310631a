"""`scrl plan`: memory and seconds of a run before it starts."""
