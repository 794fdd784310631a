"""Classes and entropies → labels → rewards → advantages: pure functions, one small file per method."""
