"""The LoCoMo data set (arXiv:2402.17753): schema, strict loader, repairs, fingerprint, slices, the shipped sample."""
