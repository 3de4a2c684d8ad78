"""Checkpoints: every bit comes back, and a broken one is named."""

import json
from dataclasses import replace

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save

from fedpca.core import Params, Server, Verdict
from fedpca.errors import RunError
from fedpca.runs.checkpoint import SUM, go_back, load_checkpoint, load_tensors, save_checkpoint, save_rest, save_tensors
from fedpca.runs.folder import CHECKPOINT, PREVIOUS


def a_server() -> Server:
    params = Params(torch.randn(5), torch.rand(2), torch.tensor([7]), lengths=(2, 3, 2))
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
        {"moment": torch.randn(5).double()},
        {"fedce/weights": torch.randn(5)},
    )


def test_a_checkpoint_gives_back_every_bit(tmp_path):
    server = a_server()
    memory = {"a/b": {"labels": torch.tensor([1, 2]), "last\nmodel": torch.randn(3)}, "c": {}}
    save_checkpoint(tmp_path, server, memory)
    again, remembered, untested = load_checkpoint(tmp_path)
    assert untested is None
    for name in ("weights", "buffers", "counters"):
        assert torch.equal(getattr(again.params, name), getattr(server.params, name))
    assert again.params.lengths == server.params.lengths
    assert list(again.memory) == ["moment"]
    assert list(again.shown) == ["fedce/weights"]
    assert torch.equal(again.memory["moment"], server.memory["moment"])
    assert torch.equal(again.shown["fedce/weights"], server.shown["fedce/weights"])
    assert again.diagnosis == server.diagnosis
    assert (again.round, again.weights, again.left_out) == (12, server.weights, server.left_out)
    assert torch.equal(remembered["a/b"]["labels"], torch.tensor([1, 2]))
    assert torch.equal(remembered["a/b"]["last\nmodel"], memory["a/b"]["last\nmodel"])


def test_a_rule_without_weights_is_kept_as_such(tmp_path):
    save_checkpoint(tmp_path, Server(a_server().params, 1), {})
    assert load_checkpoint(tmp_path)[0].weights is None


def test_a_checkpoint_of_another_version_is_refused(tmp_path):
    save_checkpoint(tmp_path, a_server(), {})
    with safe_open(tmp_path / CHECKPOINT, "pt") as file:
        state = json.loads(file.metadata()["server"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
    old = save(
        tensors, {"server": json.dumps({key: value for key, value in state.items() if key not in ("format", SUM)})}
    )
    (tmp_path / CHECKPOINT).write_bytes(old)
    with pytest.raises(RunError, match=r"is of another version of fedpca.*delete .* and start again"):
        load_checkpoint(tmp_path)


def test_a_broken_checkpoint_is_named(tmp_path):
    save_checkpoint(tmp_path, a_server(), {})
    path = tmp_path / CHECKPOINT
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(RunError, match=r"state.safetensors cannot be read.*start again"):
        load_checkpoint(tmp_path)


def flip(path, bit: int) -> None:
    content = bytearray(path.read_bytes())
    content[bit // 8] ^= 1 << bit % 8
    path.write_bytes(content)


def test_any_flipped_bit_is_named(tmp_path):
    save_checkpoint(tmp_path, a_server(), {"a/b": {"labels": torch.tensor([1, 2])}})
    path, size = tmp_path / CHECKPOINT, (tmp_path / CHECKPOINT).stat().st_size
    whole = path.read_bytes()
    for bit in (*range(0, 8 * size, 97), *range(8 * (size - 40), 8 * size, 7)):
        path.write_bytes(whole)
        flip(path, bit)
        with pytest.raises(RunError, match=r"state\.safetensors"):
            load_checkpoint(tmp_path)


def test_a_flipped_bit_of_final_weights_is_named(tmp_path):
    save_tensors(tmp_path / "final.safetensors", {"layer.weight": torch.randn(3, 4), "none": torch.empty(0)})
    assert load_tensors(tmp_path / "final.safetensors")["layer.weight"].shape == (3, 4)
    flip(tmp_path / "final.safetensors", 8 * (tmp_path / "final.safetensors").stat().st_size - 12)
    with pytest.raises(RunError, match=r"final.safetensors is damaged, its checksum is another one"):
        load_tensors(tmp_path / "final.safetensors")


def test_the_checkpoint_before_is_kept_and_gone_back_to(tmp_path):
    assert not go_back(tmp_path)
    for number in (1, 2, 3):
        save_checkpoint(tmp_path, replace(a_server(), round=number), {})
    assert load_checkpoint(tmp_path).server.round == 3
    assert go_back(tmp_path)
    assert load_checkpoint(tmp_path).server.round == 2
    save_rest(tmp_path, a_server(), {}, None)
    assert not (tmp_path / PREVIOUS).exists()


def test_a_checkpoint_without_a_checksum_is_read_if_it_is_of_the_format_before(tmp_path):
    save_checkpoint(tmp_path, a_server(), {})
    for number, is_read in ((2, True), (3, False)):
        with safe_open(tmp_path / CHECKPOINT, "pt") as file:
            state = {**json.loads(file.metadata()["server"]), "format": number}
            state.pop(SUM, None)
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (not a dict)
        (tmp_path / CHECKPOINT).write_bytes(save(tensors, {"server": json.dumps(state)}))
        if is_read:
            assert load_checkpoint(tmp_path).server.round == 12
        else:
            with pytest.raises(RunError, match="is damaged"):
                load_checkpoint(tmp_path)
