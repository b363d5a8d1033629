import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from scripted_cli import FIXTURES, said

from agentsdock.backends import cursor_texts as texts
from agentsdock.backends.cursor_texts import SignIn
from agentsdock.backends.plain_text import REASON_CHARS, public_reason

COMPATIBLE = [
    "help-compatible.txt",
    "help-compatible-old-name.txt",
    "help-compatible-narrow.txt",
    "help-compatible-ansi-crlf.txt",
]
INCOMPATIBLE = {
    "help-incompatible-no-trust.txt": ("--trust",),
    "help-legacy-2025.txt": ("--trust", "plan mode", "a model listing"),
    "help-mentions-only.txt": ("--trust",),
    "help-no-stream-json.txt": ("stream-json",),
    "help-no-plan-mode.txt": ("plan mode",),
}


@pytest.mark.parametrize("name", COMPATIBLE)
def test_a_help_text_with_every_option_is_compatible(name):
    assert texts.read_help(said(name)).missing == ()


@pytest.mark.parametrize("name,missing", INCOMPATIBLE.items())
def test_exactly_what_a_help_text_lacks_is_named(name, missing):
    assert texts.read_help(said(name)).missing == missing


@pytest.mark.parametrize(
    "name", ["help-other-program.txt", "help-ide-launcher.txt", "help-crash.txt"]
)
def test_the_help_text_of_another_program_is_incompatible(name):
    assert "--trust" in texts.read_help(said(name)).missing


def test_options_that_a_build_spells_otherwise_are_used_as_it_spells_them():
    compatible = said("help-compatible.txt")
    assert texts.read_help(compatible).plan == ("--mode", "plan")
    assert texts.read_help(compatible).listing == ("--list-models",)
    assert texts.read_help(compatible).print_flag == "-p"

    asks_only = compatible.replace('(choices: "plan", "ask")', '(choices: "ask")')
    assert texts.read_help(asks_only).plan == ("--plan",)
    assert texts.read_help(said("help-incompatible-no-trust.txt")).listing == ("models",)
    assert texts.read_help(compatible.replace("  -p, --print", "  --print    ")).print_flag == (
        "--print"
    )


def test_a_word_in_a_wrapped_description_is_no_option():
    wrapped = "  --no-color                   No colours. Formerly named\n"
    wrapped += " " * 31 + "--trust\n"
    without = "".join(
        line
        for line in said("help-compatible.txt").splitlines(keepends=True)
        if "--trust" not in line
    )
    assert texts.read_help(without.replace("  -h, --help", f"{wrapped}  -h, --help")).missing == (
        "--trust",
    )


def test_a_flag_p_that_takes_a_value_is_not_print_mode():
    other = said("help-compatible.txt").replace("  -p, --print    ", "  -p, --port <n> ")
    assert texts.read_help(other).missing == ("print mode",)


@pytest.mark.parametrize(
    "row",
    [
        "  --mode <mode>   plan or ask",
        "  --mode <plan|ask>   Where to start",
        "  --mode <mode>   plan | ask",
    ],
)
def test_values_are_found_in_each_way_of_telling_them(row):
    assert texts.read_help(f"Options:\n{row}\n").missing.count("plan mode") == 0


def test_a_closed_list_of_values_wins_over_words():
    row = '  --mode <mode>   No plan mode here (choices: "ask", "debug")'
    assert "plan mode" in texts.read_help(f"Options:\n{row}\n").missing


@pytest.mark.parametrize(
    "name,version",
    [
        ("version.txt", "2026.09.30-1a2b3c4"),
        ("version-with-time.txt", "2026.06.11-03-15-00-9f8e7d6"),
        ("version-2025.txt", "2025.09.18-0c1d2e3"),
        ("version-noisy.txt", "2026.09.30-1a2b3c4"),
    ],
)
def test_the_release_is_found_on_either_stream(name, version):
    assert texts.read_version(said(name)) == version
    assert texts.read_version("", said(name)) == version
    assert texts.read_version(said(name), said(name)) == version


def test_a_version_of_another_shape_is_its_first_line_cleaned_and_bounded():
    assert texts.read_version("\n  v3 <beta>;\x07 \x1b[1mx\x1b[0m  \nmore") == "v3 beta x"
    assert len(texts.read_version("9" * 500)) == 120
    assert texts.read_version(said("version-ide.txt")) == "3.9.1"
    assert texts.read_version(" \n", "") is None


@pytest.mark.parametrize(
    "name,verdict",
    [
        ("status-logged-in.txt", SignIn.IN),
        ("status-logged-in-ansi.txt", SignIn.IN),
        ("status-logged-in-name.txt", SignIn.IN),
        ("status-json-logged-in.txt", SignIn.IN),
        ("status-not-logged-in.txt", SignIn.OUT),
        ("status-json-not-logged-in.txt", SignIn.OUT),
        ("status-token-expired.txt", SignIn.OUT),
        ("status-bad-key.txt", SignIn.OUT),
        ("list-models-unauthenticated.txt", SignIn.OUT),
        ("stderr-not-logged-in.txt", SignIn.OUT),
        ("status-keychain-locked.txt", SignIn.UNCLEAR),
        ("status-unknown.txt", SignIn.UNCLEAR),
    ],
)
def test_only_clear_words_tell_who_is_signed_in(name, verdict):
    assert texts.read_sign_in(said(name)) is verdict


@pytest.mark.parametrize(
    "text,verdict",
    [
        ('{"authenticated": false}', SignIn.OUT),
        ("Authenticated: true", SignIn.IN),
        ("is_authenticated = 'false'", SignIn.OUT),
        ("Authenticated", SignIn.IN),
        ("unauthenticated", SignIn.OUT),
        ("you were authenticated once", SignIn.UNCLEAR),
        ("Logged in as", SignIn.UNCLEAR),
        ("nobody is logged in as root", SignIn.UNCLEAR),
        ("", SignIn.UNCLEAR),
    ],
)
def test_words_that_only_resemble_a_verdict_are_none(text, verdict):
    assert texts.read_sign_in(text) is verdict


def test_a_locked_keychain_is_recognised():
    assert texts.known_sign_in_trouble(said("status-keychain-locked.txt"))
    assert texts.known_sign_in_trouble(said("status-unknown.txt")) is None


@pytest.mark.parametrize("name", ["list-models-free-plan.txt", "list-models-noisy.txt"])
def test_the_router_is_recognised(name):
    models = texts.read_models(said(name))
    assert [model.id for model in models if model.is_router] == ["auto"]
    assert models[0].is_current
    assert models[0].label == "Auto"


def test_models_come_in_the_order_of_the_cli_with_their_markers_cut():
    models = texts.read_models(said("list-models-paid-plan.txt"))
    assert [model.id for model in models] == [
        "auto",
        "composer-2.5",
        "composer-2.5-fast",
        "gpt-5.5-extra-high",
        "claude-fable-5",
        "kimi-k3-max",
    ]
    assert texts.default_model(models).id == "composer-2.5-fast"
    assert texts.default_model(models).label == "Composer 2.5 Fast"
    assert [model.id for model in models if model.is_current] == ["composer-2.5"]
    assert models[4].label == "Claude Fable 5 (NO ZDR)"


def test_a_list_with_noise_and_odd_labels_is_read():
    assert [model.id for model in texts.read_models(said("list-models-noisy.txt"))] == [
        "auto",
        "gpt-5-mini",
    ]
    odd = {model.id: model.label for model in texts.read_models(said("list-models-odd-labels.txt"))}
    assert odd["bridge-1"] == "Bridge - the long one (beta)"
    assert odd["auto"] == "Auto"
    assert odd["spaced"] == "Spaced Out"
    assert len(texts.read_models(said("list-models-free-plan.txt"))) == 4


@pytest.mark.parametrize(
    "name", ["list-models-empty.txt", "list-models-unauthenticated.txt", "cannot-use-model.txt"]
)
def test_a_text_without_models_has_none(name):
    assert texts.read_models(said(name)) == ()


def test_a_model_that_is_listed_twice_counts_once_and_a_tip_is_no_model():
    text = "Available models\n\na - First\na - Second\n\nTip: pick one\nb - of these\n"
    assert [model.label for model in texts.read_models(text)] == ["First"]


def test_an_id_that_could_be_an_option_is_no_model():
    assert texts.read_models("--force - Force\nauto - Auto\n")[0].id == "auto"


def test_the_list_is_bounded():
    assert len(texts.read_models("\n".join(f"m{n} - M" for n in range(5000)))) == 1000


@pytest.mark.parametrize(
    "about,tier,free",
    [
        (said("about.txt"), "Pro", False),
        (said("about-json.txt"), "Free", True),
        ("Subscription Tier: Hobby\n", "Hobby", True),
        ("subscription tier   Individual - FREE\n", "Individual - FREE", True),
        ("Subscription Tier   Freedom\n", "Freedom", False),
        ("Subscription Tier\nOS   linux\n", None, False),
        ('{"subscriptionTier": null}', None, False),
        ("", None, False),
    ],
)
def test_only_an_explicitly_free_plan_is_free(about, tier, free):
    assert texts.read_tier(about) == tier
    assert texts.is_free(tier) is free


@pytest.mark.parametrize(
    "about,cursor",
    [
        (said("about.txt"), True),
        (said("about-json.txt"), True),
        ("\x1b[1mAbout Cursor CLI\x1b[22m\n\nModel  Auto\n", True),
        ("About Grok CLI\n\nCLI Version  2026.01.01-x\n", False),
        ("CLI Version  3.2.0\n", False),
        (said("version-ide.txt"), False),
        (said("help-other-program.txt"), False),
        ("", False),
    ],
)
def test_the_agent_is_told_from_others_of_its_name(about, cursor):
    assert texts.is_cursor_agent(about) is cursor


def test_a_reason_shows_no_path_and_no_address():
    text = "\n\x1b[31mError\x1b[0m: no '/home/a b/x' in /opt/c or ~/d for me@example.invalid.\nmore"
    assert public_reason(text) == "Error: no <path> in <path> or <path> for <address>"
    assert "linux/x64" in public_reason(said("help-crash.txt"))
    assert len(public_reason("x" * 9000)) == REASON_CHARS


READERS = [
    texts.read_help,
    texts.read_version,
    texts.read_sign_in,
    texts.known_sign_in_trouble,
    texts.read_models,
    texts.read_tier,
    texts.is_cursor_agent,
    public_reason,
]
WHOLE = [path.read_bytes().decode() for path in sorted(FIXTURES.glob("*.txt"))]
NOISE = st.text(st.sampled_from("abc -=|:<>[]()\"'`/\n\r\t\x1b\x07]@~.,0\ud800é"), max_size=400)


@given(st.one_of(st.text(), NOISE, st.tuples(st.sampled_from(WHOLE), NOISE).map("".join)))
@example("Options:\n  \n      x\n  -\n")
def test_no_text_makes_a_reader_raise(text):
    for reader in READERS:
        reader(text)


@given(st.sampled_from(WHOLE), st.data())
def test_no_cut_of_a_known_text_makes_a_reader_raise(text, data):
    cut = data.draw(st.integers(0, len(text)))
    for reader in READERS:
        reader(text[:cut])
        reader(text[cut:])


@pytest.mark.parametrize(
    "piece",
    ["\n", " ", "\x1b[", "\x1b]", "|", "-", "a-", 'choices: "', "about ", " cli", "(", "'/", "a@"],
)
def test_a_hostile_text_costs_no_more_than_its_length(piece):
    text = f"Options:\n  --mode x\nabout {piece * (400_000 // len(piece))}"
    began = time.process_time()
    for reader in READERS:
        reader(text)
    assert time.process_time() - began < 5
