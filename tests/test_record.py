import json

import pytest
import torch

from fedpca.core import Params, Server, Verdict
from fedpca.errors import RunError
from fedpca.runs import folder as record


def a_server() -> Server:
    params, side = (Params(torch.randn(5), torch.rand(2), torch.tensor([7]), lengths=(2, 3, 2)) for _ in range(2))
    verdict = Verdict(
        "rare",
        suspicion=1 / 3,
        threshold=0.97,
        weight=0.1,
        report={"loss": 0.1 + 0.2, "classes": [1.0, 2.5]},
        notes={"share": 1 / 7},
        sides={"fedce": Verdict(weight=0.3, notes={"rounds": 2.0})},
    )
    return Server(
        params,
        12,
        {"a/b": verdict, "c": Verdict()},
        {"a/b": 1 / 3, "c": 2 / 3},
        {"d": "its weights are not finite"},
        {"fedce": side},
    )


def test_a_checkpoint_gives_back_every_bit(tmp_path):
    server = a_server()
    memory = {"a/b": {"labels": torch.tensor([1, 2]), "last\nmodel": torch.randn(3)}, "c": {}}
    record.save_checkpoint(tmp_path, server, memory)
    again, remembered = record.load_checkpoint(tmp_path)
    for name in ("weights", "buffers", "counters"):
        assert torch.equal(getattr(again.params, name), getattr(server.params, name))
        assert torch.equal(getattr(again.sides["fedce"], name), getattr(server.sides["fedce"], name))
    assert again.params.lengths == server.params.lengths
    assert again.diagnosis == server.diagnosis
    assert (again.round, again.weights, again.left_out) == (12, server.weights, server.left_out)
    assert torch.equal(remembered["a/b"]["labels"], torch.tensor([1, 2]))
    assert torch.equal(remembered["a/b"]["last\nmodel"], memory["a/b"]["last\nmodel"])


def test_a_rule_without_weights_is_kept_as_such(tmp_path):
    record.save_checkpoint(tmp_path, Server(a_server().params, 1), {})
    assert record.load_checkpoint(tmp_path)[0].weights is None


def test_a_broken_checkpoint_is_named(tmp_path):
    record.save_checkpoint(tmp_path, a_server(), {})
    path = tmp_path / record.CHECKPOINT
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(RunError, match=r"state.safetensors cannot be read.*start again"):
        record.load_checkpoint(tmp_path)


def test_rounds_after_the_checkpoint_are_cut(tmp_path):
    for number in (1, 2, 3):
        record.append_round(tmp_path, {"round": number})
    with (tmp_path / record.ROUNDS).open("a") as file:
        file.write('{"round": 4, "gro')
    record.keep_rounds(tmp_path, 2)
    lines = (tmp_path / record.ROUNDS).read_text().splitlines()
    assert [json.loads(line)["round"] for line in lines] == [1, 2]
    with pytest.raises(RunError, match="fewer than the 3 rounds"):
        record.keep_rounds(tmp_path, 3)


def test_a_second_writer_is_refused(tmp_path):
    with record.locked(tmp_path), pytest.raises(RunError, match="written by another process"), record.locked(tmp_path):
        pass
    with record.locked(tmp_path):
        pass


def test_numbers_that_json_does_not_know_are_refused(tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        record.append_round(tmp_path, {"loss": float("nan")})
