"""The operations that nodes of a topology carry out, as frozen descriptions; `penstock.runtime` computes them."""
