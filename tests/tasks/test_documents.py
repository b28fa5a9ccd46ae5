"""Documents from texts, tables and labelled corpora."""

from clearformer import data
from clearformer.config import DataConfig
from clearformer.data import DataFolders
from clearformer.tasks.documents import documents


def test_documents_from_tables_and_labelled_corpora(tmp_path, monkeypatch):
    (tmp_path / "a.csv").write_text("review\n" + "".join(f"film {i}. good\n" for i in range(50)))
    config = DataConfig(
        source=str(tmp_path / "a.csv"), text_column="review", validation_fraction=0.2
    )
    training, held_back = documents(config, DataFolders(), 16, 0)
    rows = [*training.documents(), *held_back.documents()]
    assert len(list(held_back.documents())) == 10
    assert sorted(rows) == sorted(f"film {i}. good" for i in range(50))
    assert training.size == sum(map(len, training.documents()))

    def read(part, places):
        assert part != "test"
        labels = ("a",) * 30 if part == "train" else None
        return data.Table(part, tuple(f"{part} {i}" for i in range(30)), labels)

    corpus = data.LabelledCorpus("imdb", "films", ("train", "test", "unlabelled"), read)
    monkeypatch.setitem(data.CORPORA, "imdb", corpus)
    training, held_back = documents(DataConfig(source="imdb"), DataFolders(), 16, 0)
    names = {text.split()[0] for text in training.documents()}
    assert names == {"train", "unlabelled"}
    assert len([*training.documents(), *held_back.documents()]) == 60
    own = DataConfig(source="imdb", validation=str(tmp_path / "a.csv"), text_column="review")
    training, held_back = documents(own, DataFolders(), 16, 0)
    assert (len(list(training.documents())), len(list(held_back.documents()))) == (60, 50)
