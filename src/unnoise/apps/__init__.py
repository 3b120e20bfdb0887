"""Applications of the core: commands and callbacks, registered by name and imported on first use.

This module is a plug-in of the group `unnoise.plugins`. The core does not import it.
"""

from unnoise.registry import register

COMMANDS = {
    "train": "plots.command:TrainCommand",
    "generate": "plots.command:GenerateCommand",
    "compare": "plots.command:CompareCommand",
    "info": "plots.command:InfoCommand",
    "infill": "filling.command:InfillCommand",
    "eval": "protocols.command:EvalCommand",
    "fill": "filling.command:FillCommand",
    "inpaint": "images:InpaintCommand",
    "correct": "spelling.command:CorrectCommand",
    "harness": "harness.command:HarnessCommand",
    "tables": "protocols.command:TablesCommand",
    "noise": "plots.command:NoiseCommand",
    "plot": "plots.command:PlotCommand",
    "contrast": "contrasts.command:ContrastCommand",
    "studio": "studio.command:StudioCommand",
    "demo": "demo:DemoCommand",
}
for name, target in COMMANDS.items():
    register("command", name)(f"{__name__}.{target}")
register("callback", "word-counts")(f"{__name__}.spelling.words:WordCounts")
