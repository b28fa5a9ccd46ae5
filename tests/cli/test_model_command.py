"""Commands that use a model open whatever `clearformer.load` opens."""

from clearformer.hub.importing import import_checkpoint
from clearformer.hub.write_run import write_run


def test_opens_hugging_face_folder(clearformer, run, tmp_path):
    theirs = tmp_path / "theirs"
    assert clearformer("export", run, "--out", str(theirs)).code == 0
    ask = ("12 g", "--max-tokens", "8", "--temperature", "0")
    ours = clearformer("generate", run, *ask).out
    assert clearformer("generate", str(theirs), *ask).out == ours
    imported = write_run(import_checkpoint(theirs), tmp_path / "imported")
    assert clearformer("generate", str(imported), *ask).out == ours
    embedded = clearformer("embed", str(theirs), "a", "--json")
    assert embedded.code == 0
    assert embedded.out == clearformer("embed", run, "a", "--json").out


def test_rejects_unknown_device(clearformer, run):
    said = clearformer("generate", run, "x", "--device", "abacus").complaint
    assert said.startswith("device is 'abacus', which this torch cannot use")


def test_errors_name_flags_instead_of_parameters(clearformer, run):
    said = clearformer("generate", run, "x", "--top-k", "3", "--beam", "2").complaint
    assert said == "--top-k does not go with --beam, which does not sample: leave one out"
