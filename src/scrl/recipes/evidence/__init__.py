"""The campaign on real models: settings written out in full, small result files, and the tables made of them."""
