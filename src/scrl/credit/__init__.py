"""Classes and entropies → labels → rewards → advantages: pure functions, one small file a method."""
