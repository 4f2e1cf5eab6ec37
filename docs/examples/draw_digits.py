"""Draws pictures of digits, one folder a class: something to train on.

python draw_digits.py FOLDER [COUNT]
"""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random

from PIL import Image, ImageDraw, ImageFont

SIZE = 20  # pixels


def draw(digit: int, random: Random) -> Image.Image:
    """Return a grey picture of a digit, a little moved, turned and noisy."""
    picture = Image.new("L", (SIZE, SIZE))
    place = (random.randint(3, 8), random.randint(1, 6))
    font = ImageFont.load_default(size=random.randint(11, 14))
    ImageDraw.Draw(picture).text(place, str(digit), fill=255, font=font)
    picture = picture.rotate(random.uniform(-15, 15))
    return picture.point([min(255, v + random.randint(0, 40)) for v in range(256)])


def main(folder: Path, count: int) -> None:
    """Write ``count`` pictures, evenly over the digits."""
    random = Random(1)
    for number in range(count):
        digit = number % 10
        path = folder / str(digit) / f"{number:05d}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        draw(digit, random).save(path)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 2000)
