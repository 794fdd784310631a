"""`scrl plan`: what a run will do, and the memory it needs, before it starts."""
