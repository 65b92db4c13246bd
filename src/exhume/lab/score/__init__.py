"""The lab as the judge: scenarios played with everything drawn by lot, diagnosed blindly, and counted."""
