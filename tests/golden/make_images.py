#!/usr/bin/env python3
"""Writes tests/data/images: what Pillow decodes and what the image processors of transformers make of pictures.

usage: make_images.py decoded OUT.json     needs Pillow and NumPy
       make_images.py prepared OUT.json    needs transformers, torch and torchvision too

decoded: small files of every kind in base64, each with its size and the first half of the SHA-256 of its pixels, RGB, upright.
prepared: for each processor, its configuration files and, for pictures of pattern(), the tiles: patches a column and a row,
tokens, and the SHA-256 of the patches as the vision tower takes them (float32, little-endian); and the text in the prompt.
"""
import base64
import hashlib
import io
import itertools
import json
import struct
import sys
import zlib

import numpy as np

RNG = np.random.default_rng(2)
W, H = 13, 9


def pattern(width, height, channels=3):
    """Pixels that processor_test.cc computes too."""
    y, x = np.mgrid[0:height, 0:width]
    planes = [(x * 7 + y * 3 * (c + 1) + ((x // 5 + y // 4) % 3) * 40 * (c + 1)) % 256 for c in range(channels)]
    pixels = np.stack(planes, -1).astype(np.uint8)
    return pixels[..., 0] if channels == 1 else pixels


def sha256(array):
    """The first half of it."""
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:32]


# ---- files ----

def chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def png(depth, kind, rows, palette=None, transparent=None, interlaced=0, before=b"", behind=b""):
    data = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", W, H, depth, kind, 0, 0, interlaced)) + before
    data += chunk(b"PLTE", palette) if palette is not None else b""
    data += chunk(b"tRNS", transparent) if transparent is not None else b""
    return data + chunk(b"IDAT", zlib.compress(rows, 9)) + behind + chunk(b"IEND", b"")


def png_rows(pixels):
    return b"".join(b"\0" + row.tobytes() for row in pixels)


def interlaced_rows(pixels):
    passes = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
    return b"".join(png_rows(pixels[top::down, left::right]) for left, top, right, down in passes
                    if pixels[top::down, left::right].size)


def packed_rows(depth, values):
    data = b""
    for row in values:
        bits = "".join(format(int(value), f"0{depth}b") for value in row)
        bits += "0" * (-len(bits) % 8)
        data += b"\0" + bytes(int(bits[i:i + 8], 2) for i in range(0, len(bits), 8))
    return data


def exif(orientation, big_endian=False, kind=3):
    order = ">" if big_endian else "<"
    value = struct.pack(order + "HH", orientation, 0) if kind == 3 else struct.pack(order + "I", orientation)
    return ((b"MM\0*" if big_endian else b"II*\0") + struct.pack(order + "IHHHI", 8, 1, 0x112, kind, 1) + value +
            struct.pack(order + "I", 0))


def random_bytes(count):
    return RNG.integers(0, 256, count, dtype=np.uint8).tobytes()


def png_files():
    for depth in (1, 2, 4, 8):
        values = RNG.integers(0, 2**depth, (H, W))
        yield f"gray{depth}.png", png(depth, 0, packed_rows(depth, values), transparent=b"\0\0")
        colors = min(2**depth, 200)
        yield f"palette{depth}.png", png(depth, 3, packed_rows(depth, values % colors), random_bytes(3 * colors),
                                         bytes(range(min(colors, 3))))
    yield "palette_short.png", png(8, 3, packed_rows(8, RNG.integers(0, 5, (H, W))), random_bytes(9))
    gray16 = RNG.choice([0, 1, 100, 255, 256, 300, 40000, 65535], (H, W)).astype(">u2")
    yield "gray16.png", png(16, 0, png_rows(gray16))
    yield "gray16_interlaced.png", png(16, 0, interlaced_rows(gray16), interlaced=1)
    for name, kind, channels in (("gray_alpha", 4, 2), ("rgb", 2, 3), ("rgba", 6, 4)):
        pixels = RNG.integers(0, 65536, (H, W, channels))
        yield f"{name}8.png", png(8, kind, png_rows((pixels >> 8).astype(np.uint8)))
        yield f"{name}16.png", png(16, kind, png_rows(pixels.astype(">u2")))
    rows = png_rows(pattern(W, H))
    yield "interlaced.png", png(8, 2, interlaced_rows(pattern(W, H)), interlaced=1)
    yield "transparent_color.png", png(8, 2, rows, transparent=b"\0\7\0\3\0\2")
    yield "gamma.png", png(8, 2, rows, before=chunk(b"gAMA", struct.pack(">I", 100000)) + chunk(b"sRGB", b"\0"))
    for orientation in range(1, 9):
        yield f"exif{orientation}.png", png(8, 2, rows, before=chunk(b"eXIf", exif(orientation, orientation % 2 == 0)))
    yield "exif_behind.png", png(8, 2, rows, behind=chunk(b"eXIf", exif(6)))


def pillow_files(image_class):
    image = image_class.fromarray(pattern(21, 17))

    def saved(picture, kind, **options):
        file = io.BytesIO()
        picture.save(file, kind, **options)
        return file.getvalue()

    for quality, subsampling in ((90, 0), (75, 1), (60, 2)):
        yield f"q{quality}.jpg", saved(image, "JPEG", quality=quality, subsampling=subsampling)
    yield "progressive.jpg", saved(image, "JPEG", progressive=True)
    yield "restarts.jpg", saved(image, "JPEG", restart_marker_blocks=2)
    yield "rgb.jpg", saved(image, "JPEG", keep_rgb=True)
    yield "gray.jpg", saved(image_class.fromarray(pattern(21, 17, 1)), "JPEG")
    yield "cmyk.jpg", saved(image_class.fromarray(pattern(21, 17, 4), "CMYK"), "JPEG")
    yield "exif6.jpg", saved(image, "JPEG", exif=b"Exif\0\0" + exif(6))
    yield "exif_long.jpg", saved(image, "JPEG", exif=b"Exif\0\0" + exif(3, True, 4))
    alpha = np.concatenate([pattern(21, 17), pattern(21, 17, 1)[..., None]], -1)
    alpha = image_class.fromarray(alpha, "RGBA")
    for name, picture in (("rgb", image), ("alpha", alpha)):
        yield f"{name}_lossy.webp", saved(picture, "WEBP", quality=80)
        yield f"{name}_lossless.webp", saved(picture, "WEBP", lossless=True, exact=True)
    yield "exif8.webp", saved(image, "WEBP", exif=exif(8, True))
    others = [image_class.fromarray(pattern(21, 17) + 9)]
    yield "animated.webp", saved(image, "WEBP", save_all=True, append_images=others, duration=50, lossless=True)
    frames = [image_class.new("RGBA", (40, 30), (0, 0, 0, 0)) for _ in range(2)]
    frames[0].paste(alpha.crop((0, 0, 10, 8)), (12, 6))
    frames[1].paste(alpha.crop((3, 3, 9, 9)), (20, 20))
    yield "animated_part.webp", saved(frames[0], "WEBP", save_all=True, append_images=frames[1:], duration=50, lossless=True,
                                      minimize_size=True)


def decoded():
    from PIL import Image, ImageOps
    golden = {}
    for name, data in itertools.chain(png_files(), pillow_files(Image)):
        pixels = np.array(ImageOps.exif_transpose(Image.open(io.BytesIO(data))).convert("RGB"))
        golden[name] = {"file": base64.b64encode(data).decode(), "width": pixels.shape[1], "height": pixels.shape[0],
                        "sha256": sha256(pixels)}
    return golden


# ---- processors: name -> (files, function of a picture that gives tiles and text) ----

def processor_class(name, module):
    import importlib
    return getattr(importlib.import_module(f"transformers.models.{module}.image_processing_{module}"), name)


def by_rows(pixels, size):
    """[channels, height, width] as patches of channel, row, column; and how many they are."""
    pixels = pixels[:, :pixels.shape[1] // size * size, :pixels.shape[2] // size * size]
    _, height, width = pixels.shape
    patches = pixels.reshape(3, height // size, size, width // size, size).transpose(1, 3, 0, 2, 4)
    return patches, height // size, width // size


def tile(patches, rows, columns, tokens):
    return [int(rows), int(columns), int(tokens), sha256(patches.astype("<f4"))]


def gemma3(picture, **options):
    found = processor_class("Gemma3ImageProcessor", "gemma3")(size={"height": 896, "width": 896}, **options)(
        images=picture, return_tensors="np")
    return [tile(*by_rows(found["pixel_values"][0], 14), 256)], "\n\n<start_of_image>" + "<image_soft_token>" * 256 + "<end_of_image>\n\n"


def gemma4(picture, **options):
    found = processor_class("Gemma4ImageProcessor", "gemma4")(**options)(images=picture, return_tensors="np")
    tokens = int(found["num_soft_tokens_per_image"][0])
    columns, rows = found["image_position_ids"][0].max(0) + 1
    return [tile(found["pixel_values"][0][:tokens * 9], rows, columns, tokens)], "<|image>" + "<|image|>" * tokens + "<image|>"


def qwen(picture, patch_size=14, **options):
    found = processor_class("Qwen2VLImageProcessor", "qwen2_vl")(patch_size=patch_size, **options)(
        images=picture, return_tensors="np")
    _, rows, columns = found["image_grid_thw"][0]
    frames = found["pixel_values"].reshape(-1, 3, 2, patch_size, patch_size)
    return [tile(frames[:, :, 0], rows, columns, rows * columns // 4)], "<|image_pad|>" * int(rows * columns // 4)


def lfm2(picture, **options):
    processor = processor_class("Lfm2VlImageProcessor", "lfm2_vl")(**options)
    found = processor(images=picture, return_tensors="np", return_row_col_info=True)
    tiles = [tile(values[:rows * columns], rows, columns, rows * columns // 4)
             for values, (rows, columns) in zip(found["pixel_values"], found["spatial_shapes"])]
    rows, columns = (int(np.array(found[key][0]).ravel()[0]) for key in ("image_rows", "image_cols"))
    text = "<|image_start|>"
    tokens = iter([entry[2] for entry in tiles])
    if rows * columns > 1:
        for row, column in itertools.product(range(rows), range(columns)):
            text += f"<|img_row_{row + 1}_col_{column + 1}|>" + "<image>" * next(tokens)
        text += "<|img_thumbnail|>" if processor.use_thumbnail else ""
    return tiles, text + "".join("<image>" * count for count in tokens) + "<|image_end|>"


def idefics3(picture, side, patch, tokens, **options):
    from transformers.models.smolvlm.processing_smolvlm import get_image_prompt_string
    found = processor_class("Idefics3ImageProcessor", "idefics3")(max_image_size={"longest_edge": side}, **options)(
        images=[picture], return_tensors="np", return_row_col_info=True)
    text = get_image_prompt_string(found["rows"][0][0], found["cols"][0][0], tokens, "<fake_token_around_image>", "<image>",
                                   "<global-img>")
    return [tile(*by_rows(values, patch), tokens) for values in found["pixel_values"][0]], text


def pixtral(picture, patch, merge, longest):
    found = processor_class("PixtralImageProcessor", "pixtral")(patch_size=patch * merge, size={"longest_edge": longest})(
        images=[picture], return_tensors="np")
    height, width = (int(length) for length in found["image_sizes"][0])
    rows, columns = height // patch // merge, width // patch // merge
    text = "[IMG_BREAK]".join(["[IMG]" * columns] * rows) + "[IMG_END]"
    return [tile(*by_rows(found["pixel_values"][0][:, :height, :width], patch), rows * columns)], text


HALF = [0.5, 0.5, 0.5]
CLIP = {"image_mean": [0.48145466, 0.4578275, 0.40821073], "image_std": [0.26862954, 0.26130258, 0.27577711]}
QWEN2 = {"min_pixels": 3136, "max_pixels": 200704}
QWEN3 = {"size": {"longest_edge": 262144, "shortest_edge": 65536}, "patch_size": 16, "image_mean": HALF, "image_std": HALF}
SMALL_TILES = {"max_tiles": 4, "use_thumbnail": False, "max_image_tokens": 64, "min_image_tokens": 4, "tile_size": 128}
SMOL = {"size": {"longest_edge": 2048}, "resample": 1}
SIZES = [(61, 47), (400, 160), (31, 300), (700, 520)]

# name: config.json, preprocessor_config.json, processor_config.json, the reference, sizes of pictures
PROCESSORS = {
    "gemma3": ({"model_type": "gemma3", "mm_tokens_per_image": 256, "vision_config": {"image_size": 896, "patch_size": 14}},
               {"size": {"height": 896, "width": 896}, "image_mean": HALF, "image_std": HALF, "resample": 2,
                "do_pan_and_scan": None, "rescale_factor": 0.00392156862745098, "image_seq_length": 256},
               {"image_seq_length": 256}, gemma3, SIZES),
    "gemma3_defaults": ({"model_type": "gemma3", "vision_config": {}}, None, None, gemma3, SIZES[:1]),
    "gemma4": ({"model_type": "gemma4", "vision_config": {}}, None, None, gemma4, SIZES + [(1600, 10)]),
    "gemma4_small": ({"model_type": "gemma4", "vision_config": {}}, None, {"image_processor": {"max_soft_tokens": 70}},
                     lambda picture: gemma4(picture, max_soft_tokens=70), SIZES),
    "qwen2_vl": ({"model_type": "qwen2_vl", "vision_config": {}}, QWEN2 | CLIP, None, lambda picture: qwen(picture, **QWEN2),
                 SIZES + [(900, 10)]),
    "qwen3_vl": ({"model_type": "qwen3_vl", "vision_config": {}}, QWEN3, None, lambda picture: qwen(picture, **QWEN3), SIZES),
    "lfm2_vl": ({"model_type": "lfm2_vl", "vision_config": {}}, None, None, lfm2, SIZES + [(1400, 700)]),
    "lfm2_vl_small": ({"model_type": "lfm2_vl", "vision_config": {}}, None, {"image_processor": SMALL_TILES},
                      lambda picture: lfm2(picture, **SMALL_TILES), SIZES),
    "smolvlm": ({"model_type": "smolvlm", "scale_factor": 4, "vision_config": {"image_size": 512, "patch_size": 16}},
                SMOL | {"max_image_size": {"longest_edge": 512}}, {"image_seq_len": 64},
                lambda picture: idefics3(picture, 512, 16, 64, **SMOL), SIZES[1:3]),
    "smolvlm2": ({"model_type": "smolvlm", "scale_factor": 3, "vision_config": {"image_size": 384, "patch_size": 14}},
                 {"size": {"longest_edge": 384}, "max_image_size": {"longest_edge": 384}}, {"image_seq_len": 81},
                 lambda picture: idefics3(picture, 384, 14, 81, size={"longest_edge": 384}), SIZES[1:3]),
    "idefics3": ({"model_type": "idefics3", "scale_factor": 2, "vision_config": {"image_size": 364, "patch_size": 14}},
                 {"size": {"longest_edge": 364}}, None,
                 lambda picture: idefics3(picture, 364, 14, 169, size={"longest_edge": 364}), SIZES),
    "idefics3_whole": ({"model_type": "idefics3", "scale_factor": 2, "vision_config": {"image_size": 364, "patch_size": 14}},
                       {"do_image_splitting": False}, None,
                       lambda picture: idefics3(picture, 364, 14, 169, do_image_splitting=False), SIZES[:1]),
    "pixtral": ({"model_type": "llava", "vision_config": {"model_type": "pixtral"}},
                {"size": {"longest_edge": 256}, "patch_size": {"height": 16, "width": 16}}, {"patch_size": 16},
                lambda picture: pixtral(picture, 16, 1, 256), SIZES),
    "mistral3": ({"model_type": "mistral3", "spatial_merge_size": 2, "vision_config": {"image_size": 1540, "patch_size": 14}},
                 {"size": {"longest_edge": 1540}}, {"patch_size": 14, "spatial_merge_size": 2},
                 lambda picture: pixtral(picture, 14, 2, 1540), SIZES),
}


def prepared():
    from PIL import Image
    golden = {}
    for name, (config, preprocessor, processor, reference, sizes) in PROCESSORS.items():
        golden[name] = {"config.json": config, "preprocessor_config.json": preprocessor, "processor_config.json": processor,
                        "images": []}
        for width, height in sizes:
            tiles, text = reference(Image.fromarray(pattern(width, height)))
            golden[name]["images"].append({"width": width, "height": height, "tiles": tiles,
                                           "text": hashlib.sha256(text.encode()).hexdigest()[:32]})
    return golden


if __name__ == "__main__":
    with open(sys.argv[2], "w", encoding="utf-8") as out:
        json.dump({"decoded": decoded, "prepared": prepared}[sys.argv[1]](), out, separators=(",", ":"))
        out.write("\n")
