"""What a person who looks after a SQL store asks for: lists, counts, checks and pruning."""
