"""Turn segments into rows: the readers' side of the store."""
