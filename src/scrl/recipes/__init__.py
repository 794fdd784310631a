"""The paper's numbers, the experiments behind them and how to run them; and the demo."""
