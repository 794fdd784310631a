"""The captured GPU sampler: rows enter and leave one recorded decode step."""
