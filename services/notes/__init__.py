"""The notes service: the vaults and what is in them. The files are the truth; its tables can be rebuilt from them."""
