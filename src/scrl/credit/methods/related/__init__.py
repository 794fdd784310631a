"""Label-free methods of other papers, beyond the rivals that the SCRL paper compares itself with."""
