"""Ways to compute a call beside the formula. Each file has `why_not(call)` and `attend(call)`."""
