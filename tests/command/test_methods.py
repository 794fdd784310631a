"""`scrl methods`: what there is to choose from."""

import re

import pytest

from scrl.cli.main import main
from scrl.credit.method import NEEDS
from scrl.credit.methods import METHODS


def said(capsys, *words):
    assert main(["methods", *words]) == 0
    return " ".join(capsys.readouterr().out.split())


def test_every_method_is_listed_once_with_idea_equation_needs_and_paper(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "150")
    text = said(capsys)
    places = [text.index(f" {name} {method.idea.split()[0]}") for name, method in METHODS.items()]
    assert places == sorted(places)
    for method in METHODS.values():
        assert method.paper in text
        assert method.idea.split()[0] in text
        assert method.equation.split(",")[0][:20] in text
    assert "arXiv:2603.19880 R =" in text
    assert re.search(r" ttrl .*? nothing contrast ", text)


@pytest.mark.parametrize("name", METHODS)
def test_all_about_one(capsys, name):
    method, text = METHODS[name], said(capsys, name)
    assert text.startswith(f"{name}: {method.idea} equation: ")
    assert method.paper in text
    for need in method.needs(method.settings()):
        assert f"needs: {need}: {NEEDS[need]}" in text
    for setting, field in method.settings.model_fields.items():
        assert f" {setting.replace('_', '-')} {field.default}" in text
        assert field.description
        assert field.description.split()[0] in text


def test_one_of_the_users_own_is_shown_too(capsys, monkeypatch, tmp_path):
    imports = "from dataclasses import replace\nfrom scrl.credit.methods.ttrl import TTRL\n"
    (tmp_path / "my_methods.py").write_text(imports + "MINE = replace(TTRL, name='mine')\n")
    monkeypatch.chdir(tmp_path)
    assert said(capsys, "my_methods:MINE").startswith("mine: ")


def test_an_unknown_method_names_the_likeliest_one(refusal):
    assert "'restrain'" in refusal("methods", "restrian")
