"""Which of the paper's claims hold in these runs; never imports PyTorch."""

from fedpca.results.claims.check import Checked, check_claims
from fedpca.results.claims.claims import Claim, read_claims
from fedpca.results.claims.sheet import as_csv, claims_sheet

__all__ = ["Checked", "Claim", "as_csv", "check_claims", "claims_sheet", "read_claims"]
