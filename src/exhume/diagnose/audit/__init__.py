"""Services into judgements: what is wrong with each, why, where it is from, and whether anything here needs it."""
