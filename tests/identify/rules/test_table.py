"""The tables of ops and hazards."""

from fusionkit.identify.ops import HAZARDS, OP_NAMES


def test_the_tables_name_every_op_and_hazard_once():
    assert len(set(OP_NAMES)) == len(OP_NAMES) == 12
    assert all(text for text in HAZARDS.values())
