"""Label-free methods of other papers, beyond the baselines of the SCRL paper."""
