import numpy as np
import torch

from fedpca.rng import branch, numbers, seed_of, stream


def draw(generator: torch.Generator) -> list[float]:
    return torch.rand(4, generator=generator).tolist()


def test_a_place_gives_the_same_numbers_whatever_was_drawn_before():
    first = draw(stream(7, "train", 3, "client"))
    torch.rand(100)
    draw(stream(7, "train", 4, "client"))
    assert draw(stream(7, "train", 3, "client")) == first
    assert numbers(7, "split").random() == numbers(7, "split").random()


def test_places_differ_in_every_part():
    places = [
        (0, "train", 1, "a"),
        (1, "train", 1, "a"),
        (0, "report", 1, "a"),
        (0, "train", 2, "a"),
        (0, "train", 1, "b"),
    ]
    assert len({seed_of(*place) for place in places}) == len(places)


def test_a_round_and_a_client_of_that_name_are_different_places():
    assert seed_of(0, "train", 1) != seed_of(0, "train", "1")


def test_numpy_integers_are_the_same_place_as_pythons():
    assert seed_of(np.int64(3), "x", np.int32(5)) == seed_of(3, "x", 5)


def test_a_branch_is_the_same_wherever_the_generator_stands_and_leaves_it_there():
    whole, drawn = stream(7, "train"), stream(7, "train")
    first = draw(drawn)
    assert draw(branch(drawn, "views")) == draw(branch(whole, "views")) != draw(branch(whole, "head"))
    assert draw(whole) == first
