from agentsdock.turns.drift import MAX_BUILDS, MAX_NAMES, DriftRadar


def test_counts_of_turns_of_one_build_add_up_and_builds_stay_apart():
    radar = DriftRadar()
    radar.add("cursor", "2026.09", {("field", "assistant.mood"): 2, ("tool", "drawToolCall"): 1})
    radar.add("cursor", "2026.09", {("field", "assistant.mood"): 3})
    radar.add("cursor", None, {("outcome", "shrugged"): 1})
    assert radar.public() == [
        {
            "backend": "cursor",
            "version": "2026.09",
            "kind": "field",
            "name": "assistant.mood",
            "count": 5,
        },
        {
            "backend": "cursor",
            "version": "2026.09",
            "kind": "tool",
            "name": "drawToolCall",
            "count": 1,
        },
        {
            "backend": "cursor",
            "version": "unknown",
            "kind": "outcome",
            "name": "shrugged",
            "count": 1,
        },
    ]


def test_a_turn_without_drift_leaves_no_row():
    radar = DriftRadar()
    radar.add("cursor", "1", {})
    assert radar.public() == []


def test_the_radar_does_not_grow_without_bound():
    radar = DriftRadar()
    radar.add("cursor", "1", {("field", str(n)): 1 for n in range(MAX_NAMES + 50)})
    for n in range(MAX_BUILDS + 10):
        radar.add("cursor", f"v{n}", {("field", "x"): 1})
    rows = radar.public()
    assert sum(row["version"] == "1" for row in rows) == MAX_NAMES
    assert len({row["version"] for row in rows}) == MAX_BUILDS
