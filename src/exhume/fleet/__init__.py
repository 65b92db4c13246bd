"""Many nodes: minute summaries, attributes and incidents of each in one lake, and questions to all of them."""
