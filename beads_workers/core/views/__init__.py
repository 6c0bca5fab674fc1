"""Folds over the records: status, boards, histories; they decide nothing."""
