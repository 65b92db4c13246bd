"""Turn rows into segments: the recorder's side of the store."""
