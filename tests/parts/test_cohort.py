from collections import Counter

from fedpca.parts.server.cohort import SampleClients, everyone

CLIENTS = [f"c{i}" for i in range(10)]


def test_everyone():
    assert everyone(CLIENTS, 3) == CLIENTS


def test_a_share_of_the_clients_in_their_order_anew_each_round():
    cohort = SampleClients(0.3, seed=1)
    rounds = [cohort(CLIENTS, number) for number in range(1, 200)]
    assert all(len(chosen) == 3 and sorted(chosen, key=CLIENTS.index) == chosen for chosen in rounds)
    assert cohort(CLIENTS, 7) == rounds[6]
    assert min(Counter(client for chosen in rounds for client in chosen).values()) > 30


def test_never_nobody():
    assert len(SampleClients(0.01, seed=0)(CLIENTS, 1)) == 1
