from hypothesis import given
from hypothesis import strategies as st
from wsproto.connection import Connection, ConnectionType
from wsproto.events import CloseConnection, TextMessage

from agentsdock.web import frames


def received(data):
    client = Connection(ConnectionType.CLIENT)
    client.receive_data(data)
    return list(client.events())


@given(st.sampled_from([0, 1, 125, 126, 127, 65_535, 65_536, 70_000]))
def test_a_client_reads_a_text_frame_of_any_size_as_it_was_built(size):
    (event,) = received(frames.text(b"x" * size))
    assert event == TextMessage(data="x" * size, frame_finished=True, message_finished=True)


def test_a_close_frame_carries_code_and_reason():
    (event,) = received(frames.close(1013, "last_seq=7"))
    assert event == CloseConnection(code=1013, reason="last_seq=7")


def test_a_close_reason_is_cut_to_what_a_control_frame_can_hold():
    (event,) = received(frames.close(1013, "r" * 500))
    assert event.reason == "r" * 123


@given(st.lists(st.integers(0, 100_000), max_size=30))
def test_groups_hold_every_row_once_and_in_order(sizes):
    rows = [(seq, b"%d" % seq + b" " * size) for seq, size in enumerate(sizes, 1)]
    groups = list(frames.grouped(rows))
    assert b"".join(group for _, group in groups) == b"".join(frames.text(body) for _, body in rows)
    assert [seq for seq, _ in groups] == sorted({seq for seq, _ in groups})
    assert not rows or groups[-1][0] == rows[-1][0]


@given(st.lists(st.integers(0, 20_000), max_size=60))
def test_a_group_of_several_frames_stays_within_its_size(sizes):
    groups = list(frames.grouped((seq, b" " * size) for seq, size in enumerate(sizes)))
    assert all(len(group) <= frames.GROUP_BYTES + 20_010 for _, group in groups)
