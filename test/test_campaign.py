"""A representative part of the fault campaign; `make campaign` runs it whole."""

from __future__ import annotations

import re

from test.campaign import main
from test.emulation import stand_in_gpu


@stand_in_gpu
def test_a_part_of_the_fault_campaign(capsys):
    code = main(['--part', '9'])
    out = capsys.readouterr().out
    last = re.fullmatch(
        r'fault campaign: (\d+) injected, (\d+) survived, 0 leaked, 0 hung', out.splitlines()[-1]
    )
    assert code == 0 and last and last[1] == last[2], out
    assert int(last[1]) >= 50
