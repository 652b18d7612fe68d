# What rules ask for by wildcards: inputs, parameters, minutes. No rule is here.


def by(wildcard, get):
    """What `get` has for the value of a wildcard."""

    def value(wildcards):
        return get(wildcards.get(wildcard))

    return value


def data_inputs(wildcards):
    source = grid.as_list(config["sources"].get(wildcards.data, []))
    return always(f"results/data/{wildcards.data}.npz", source=source)


def source_flag(wildcards, input):
    return [f"--source={path}" for path in input.source]


def image_flag(wildcards):
    return [] if wildcards.images == "all" else ["--train-images", wildcards.images]


def training_inputs(wildcards):
    place = RUNS[wildcards.run]
    inputs = {"data": LAYOUT.data_file(place["dataset"]), "partition": LAYOUT.partition_file(place)}
    return always(f"{LAYOUT.run_folder(place)}/summary.json", **inputs)


def training_flags(wildcards):
    return grid.training_flags(LAYOUT.asked(LAYOUT.runs), RUNS[wildcards.run])


def training_minutes(wildcards, attempt):
    """Tried again (a profile's `retries`), a job gets more time; a run goes on from its checkpoint."""
    return attempt * SIZE["resources"]["runtime"]


def analysis_inputs(analysis):
    """The data and, of the clients that are looked at, the partition: that of a run at the defaults."""

    def inputs(wildcards):
        dataset = wildcards.dataset
        partition = {"partition": LAYOUT.partition_file(LAYOUT.default_place(dataset))}
        files = {"data": LAYOUT.data_file(dataset), **({} if analysis in WITHOUT_PARTITION else partition)}
        return always(LAYOUT.analysis_files(analysis, dataset)[-1], **files)

    return inputs


def analysis_minutes(analysis):
    def minutes(wildcards, attempt):
        return attempt * max(kinds.ANALYSES[analysis].minutes, SIZE["resources"]["runtime"])

    return minutes


def entry(wildcards):
    """What config.yaml says of the table or the figure that a job is about."""
    return config["tables"][wildcards.table] if "table" in wildcards.keys() else config["figures"][wildcards.figure]


def code_with_kind(script):
    def files(wildcards):
        return code(script, f"results/kinds/{entry(wildcards)['kind']}")

    return files


def section(wildcards):
    return page.numbered(kinds.section(entry(wildcards)))


def table_inputs(wildcards):
    runs = table_runs(wildcards) if len(LAYOUT.table_rows(wildcards.table)) else []
    return LAYOUT.table_files(wildcards.table) | ({"runs": runs} if runs else {})


def figure_inputs(wildcards):
    rows = LAYOUT.panel_rows(wildcards.figure)
    runs = [file for panel in rows for file in run_files(panel, *FILES[1:])]
    return LAYOUT.figure_files(wildcards.figure) | ({"runs": runs} if runs else {})


def panels(wildcards):
    """What the runs of each are read from, and what is asked of them."""
    return [(run_folders(rows), LAYOUT.asked(rows)) for rows in LAYOUT.panel_rows(wildcards.figure)]


def configuration_arguments(wildcards):
    """The same configuration for a command of the package."""
    return configuration.as_arguments(dict.fromkeys(CONFIGURED_BY), config if MODULE else COMMAND_LINE)


def definitions(wildcards):
    """What the document is to know: its scale, its folders, and which tables and figures there are."""
    folders = {"generated": LATEX, "together": LATEX_TOGETHER}
    words = {"scale": SCALE, **{name: os.path.relpath(folder, "paper") for name, folder in folders.items()}}
    made = [*(f"table:{name}" for name in TABLES), *(f"figure:{name}" for name in FIGURE_NAMES)]
    defined = [rf"\def\{name}{{{text}}}" for name, text in words.items()]
    return "".join([*defined, *(rf"\expandafter\def\csname {name}\endcsname{{}}" for name in made)])


def main_from_paper(wildcards, input):
    return os.path.relpath(input.main, "paper")


def folder_of_references(wildcards, input):
    return str(Path(input.references).parent.absolute())


def pictures_of_paper(wildcards):
    return f"{LATEX}/figures"


def reference_folder(wildcards):
    return "paper/reference"
