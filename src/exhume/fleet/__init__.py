"""Many nodes: their minute summaries, attributes and incidents in one lake, and queries over all of them."""
