"""The paper's numbers, the experiments behind them and how to carry them out; and the demo."""
