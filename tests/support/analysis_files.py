"""What analyses write: the memory of arms and contrasts by hand, what needs no training as rules make it."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

from qlocaladam.jobs import write_analysis

MEMORY = """\
dataset,arm,block_size,parameters,fp32_bytes,held_bytes,published_bytes,held_ratio,published_ratio,metadata_percent
cifar10,fp32,64,6294202,50353616,50353616,50353616,1.0,1.0,0.0
cifar10,q-localadam,32,6294202,50353616,15735604,17309600,3.2,2.909,20.0
cifar10,q-localadam,64,6294202,50353616,14162100,14950112,3.5555,3.3681,11.1
cifar10,q-localadam,128,6294202,50353616,13375428,13772920,3.7646,3.656,5.9
cifar10,naive-int8,64,6294202,50353616,14162100,14950112,3.5555,3.3681,11.1
cifar100,fp32,64,11227812,89822496,89822496,89822496,1.0,1.0,0.0
cifar100,q-localadam,64,11227812,89822496,25262584,26666120,3.5555,3.3684,11.1
cifar100,naive-int8,64,11227812,89822496,25262584,26666120,3.5555,3.3684,11.1
"""
CONTRASTS = """\
dataset,alpha,arm,metric,runs,collapsed,n,seeds,left_out,mean,std,baseline_mean,difference,error,freedom,variance,scatter_p,ci_low,ci_high,simultaneous_low,\
simultaneous_high,tost_ci_low,tost_ci_high,p,margin,tost_p,wider_margin,wider_tost_p,seeds_needed,reason
cifar10,0.1,fp32,last_third,5,0,,1-5,,80.0,1.5,,,,,,,,,,,,,,,,,,,
cifar10,0.1,q-localadam,last_third,5,0,5,1-5,,80.25,1.25,80.0,0.25,0.3,8.0,pooled,0.5,-0.37,0.87,-0.6,1.1,-0.2,0.7,0.3,4.0,0.0004,8.0,1e-06,4,
cifar10,0.1,naive-int8,last_third,5,5,5,1-5,6,11.5,2.0,80.0,-68.5,0.9,4.0,paired,,-71.0,-66.0,-72.5,-64.5,-70.0,-66.5,1e-07,4.0,1.0,8.0,1.0,3,
cifar10,0.1,"Q-LocalAdam, 4 bits",last_third,5,1,5,1-5,,78.01,3.5,80,-1.99,2,4,paired,,-7,3,-9,5,-6,2,0.33,4,.5,8,.02,,
cifar100,0.5,fp32,last_third,1,0,,1,,60.0,,,,,,,,,,,,,,,,,,,,
cifar100,0.5,q-localadam,last_third,1,0,,1,,61.0,,60.0,,,,,,,,,,,,,3.0,,6.0,,,one seed: nothing to test
cifar10,0.1,fp32,best,5,0,,1-5,,82.0,1.5,,,,,,,,,,,,,,,,,,,
cifar10,0.1,q-localadam,best,5,0,5,1-5,,79.5,1.25,82.0,-2.5,0.3,8.0,pooled,0.5,-3.1,-1.9,-3.4,-1.6,-3.0,-2.0,0.001,4.0,0.02,8.0,1e-06,9,
cifar10,0.1,naive-int8,best,5,5,5,1-5,6,14.5,2.0,82.0,-67.5,0.9,4.0,paired,,-71.0,-66.0,-72.5,-64.5,-70.0,-66.5,1e-07,4.0,1.0,8.0,1.0,3,
cifar10,0.1,"Q-LocalAdam, 4 bits",best,5,1,5,1-5,,80,3.5,82,-2,1.8,4,paired,,-7,3,-9,5,-5.8,1.8,0.33,4,0.5,8,0.02,50,
cifar100,0.5,fp32,best,1,0,,1,,62.0,,,,,,,,,,,,,,,,,,,,
cifar100,0.5,q-localadam,best,1,0,,1,,63.0,,62.0,,,,,,,,,,,,,3.0,,6.0,,,one seed: nothing to test
cifar10,0.1,fp32,final,5,0,,1-5,,79.0,1.5,,,,,,,,,,,,,,,,,,,
cifar10,0.1,q-localadam,final,5,0,5,1-5,,76.5,1.25,79.0,-2.5,0.3,8.0,pooled,0.5,-3.1,-1.9,-3.4,-1.6,-3.0,-2.0,0.001,4.0,0.02,8.0,1e-06,9,
cifar10,0.1,naive-int8,final,5,5,5,1-5,6,11.5,2.0,79.0,-67.5,0.9,4.0,paired,,-71.0,-66.0,-72.5,-64.5,-70.0,-66.5,1e-07,4.0,1.0,8.0,1.0,3,
cifar10,0.1,"Q-LocalAdam, 4 bits",final,5,1,5,1-5,,77,3.5,79,-2,1.8,4,paired,,-7,3,-9,5,-5.8,1.8,0.33,4,0.5,8,0.02,50,
cifar100,0.5,fp32,final,1,0,,1,,59.0,,,,,,,,,,,,,,,,,,,,
cifar100,0.5,q-localadam,final,1,0,,1,,60.0,,59.0,,,,,,,,,,,,,3.0,,6.0,,,one seed: nothing to test
cifar10,0.1,fp32,mean,5,0,,1-5,,75.0,1.5,,,,,,,,,,,,,,,,,,,
cifar10,0.1,q-localadam,mean,5,0,5,1-5,,72.5,1.25,75.0,-2.5,0.3,8.0,pooled,0.5,-3.1,-1.9,-3.4,-1.6,-3.0,-2.0,0.001,4.0,0.02,8.0,1e-06,9,
cifar10,0.1,naive-int8,mean,5,5,5,1-5,6,7.5,2.0,75.0,-67.5,0.9,4.0,paired,,-71.0,-66.0,-72.5,-64.5,-70.0,-66.5,1e-07,4.0,1.0,8.0,1.0,3,
cifar10,0.1,"Q-LocalAdam, 4 bits",mean,5,1,5,1-5,,73,3.5,75,-2,1.8,4,paired,,-7,3,-9,5,-5.8,1.8,0.33,4,0.5,8,0.02,50,
cifar100,0.5,fp32,mean,1,0,,1,,55.0,,,,,,,,,,,,,,,,,,,,
cifar100,0.5,q-localadam,mean,1,0,,1,,56.0,,55.0,,,,,,,,,,,,,3.0,,6.0,,,one seed: nothing to test
"""


def write_exact(name: str, folder: Path, arms: dict[str, Any], places: list[tuple[str, str, int]]) -> None:
    """One of the analyses that need no training, as its rule makes it."""
    given: dict[str, Any] = {
        "memory": {"arms": arms, "places": places},
        "client_memory": {"arms": arms, "block_size": 64},
        "participation": {"clients": folder / "clients.csv"},
    }
    write_analysis(folder, import_module(f"qlocaladam.analysis.{name}").files(**given.get(name, {})))
