"""A project to work on: a small shop in Python with its settings, documents and data, the same every time."""

import random

PACKAGES = ["accounts", "billing", "catalog", "orders", "shipping"]
OWNERS = ["ana", "bo", "chen", "dara", "eli"]
VERBS = ["load", "check", "merge", "price", "route", "split", "store", "trace"]
NOUNS = ["address", "basket", "coupon", "invoice", "label", "parcel", "refund", "stock"]
CHORES = [
    "round half up here", "ask the warehouse first", "drop this when v1 clients are gone", "cache the answer",
    "use the new address form", "handle an empty basket", "tell support when this fails",
]
HEADER = "# SPDX-License-Identifier: MIT\n"
VERSION = "1.4.2"
NEXT_VERSION = "1.5.0"
SETTINGS = [f"{noun}_{what}" for noun in NOUNS for what in ("limit", "timeout", "currency")]


def make(root):
    """Writes the project below a folder."""
    dice = random.Random(20)
    files = {}
    used = dice.sample(SETTINGS, 19) + ["region_code", "dry_run"]
    for package in PACKAGES:
        files[f"shop/{package}/__init__.py"] = HEADER
        for number in range(11):
            name = f"{dice.choice(NOUNS)}_{number}"
            files[f"shop/{package}/{name}.py"] = module(dice, package, number, used)
    files["shop/__init__.py"] = f'{HEADER}__version__ = "{VERSION}"\n'
    files["shop/money.py"] = (
        f"{HEADER}\n\ndef compute_total(lines):\n    \"\"\"The sum of all lines.\"\"\"\n"
        "    return sum(line.price * line.count for line in lines)\n"
    )
    files["shop/errors.py"] = f"{HEADER}\n\nclass ShopError(Exception):\n    pass\n"
    files["settings.toml"] = settings(dice)
    files["pyproject.toml"] = f'[project]\nname = "shop"\nversion = "{VERSION}"\nrequires-python = ">=3.11"\n'
    files["deploy/values.yaml"] = f"image: shop\ntag: {VERSION}\nreplicas: 3\n"
    files["docs/install.md"] = f"# Install\n\n    pip install shop=={VERSION}\n\nThen see [usage](usage.md).\n"
    files["data/orders.csv"] = orders(dice)
    documents(dice, files)
    for path, text in files.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def module(dice, package, number, used):
    lines = [HEADER] if dice.random() < 0.7 else []
    lines.append(f'"""{package.capitalize()}, part {number}."""\n\nfrom shop.config import settings\n')
    lines.append("from shop.errors import ShopError\n")
    totals = dice.random() < 0.3
    if totals:
        lines.append("from shop.money import compute_total\n")
    if dice.random() < 0.2:
        lines.append("from shop.legacy.pricing import list_price\n")
    for part in range(dice.randint(4, 8)):
        # Most names are one of a kind, some are not.
        tail = "" if dice.random() < 0.08 else f"_{package[:3]}{number}{part}"
        name = f"{dice.choice(VERBS)}_{dice.choice(NOUNS)}{tail}"
        lines.append(f"\n\ndef {name}(basket, region, when=None):\n")
        lines.append(f'    """{name.replace("_", " ").capitalize()} for one basket and one region."""\n')
        if dice.random() < 0.5:
            lines.append(f'    limit = settings["{dice.choice(used)}"]\n')
        if dice.random() < 0.35:
            lines.append(f"    # TODO({dice.choice(OWNERS)}): {dice.choice(CHORES)}\n")
        lines.append("    for line in basket.lines:\n        if line.count < 1:\n")
        lines.append(f'            raise ShopError("E{dice.randint(100, 160)}", "{dice.choice(NOUNS)} is not valid")\n')
        if totals and dice.random() < 0.5:
            lines.append("    total = compute_total(basket.lines)\n")
        lines.append("    return [line for line in basket.lines if line.region == region]\n")
    return "".join(lines)


def settings(dice):
    lines = ["[shop]\n"]
    for key in SETTINGS:
        value = {"limit": dice.randint(1, 500), "timeout": dice.randint(1, 60)}.get(key.rsplit("_", 1)[1], '"EUR"')
        lines.append(f"{key} = {value}\n")
    return "".join(lines)


def orders(dice):
    rows = ["id,date,country,amount_cents\n"]
    for number in range(1200):
        month, day = dice.randint(1, 12), dice.randint(1, 28)
        country = dice.choice(["AT", "BE", "DE", "FR", "NL"])
        rows.append(f"{10000 + number},2026-{month:02}-{day:02},{country},{dice.randint(100, 90000)}\n")
    return "".join(rows)


def documents(dice, files):
    pages = [f"docs/{name}.md" for name in ["usage", "billing", "returns", "api", "faq", "hosting", "tax", "themes"]]
    known = sorted(files) + pages
    for page in pages:
        lines = [f"# {page[5:-3].capitalize()}\n"]
        for _ in range(14):
            target = dice.choice(known)
            link = target[5:] if target.startswith("docs/") else f"../{target}"
            if dice.random() < 0.15:
                link = link.replace(".", "_old.", 1) if not link.startswith("..") else f"../gone/{target}"
            lines.append(f"\nHow this fits together is told in [{target}]({link}), which is kept up to date.\n")
        files[page] = "".join(lines)
    codes = [f"E{code}" for code in range(100, 161) if dice.random() < 0.8]
    rows = "".join(f"| {code} | what happened and what to do |\n" for code in codes)
    files["docs/errors.md"] = f"# Errors\n\n| code | meaning |\n|---|---|\n{rows}"
    files["shop/legacy/__init__.py"] = HEADER
    files["shop/legacy/pricing.py"] = f"{HEADER}\n\ndef list_price(item):\n    return item.price\n"
