"""ShuffleBench: records matched with rules, sent on by rule, and counted there."""
