"""Pictures: models of images are looked at through their patches."""

import torch
from torch import nn

from clearformer.verification.check import verify
from clearformer.verification.pictures import FromPatches, from_patches


class PatchViT(nn.Module):
    def __init__(self, image_size=8, patch=4, merge=True):
        super().__init__()
        self.image_size, self.merge = image_size, merge
        self.embed = nn.Conv2d(3, 12, patch, stride=patch)
        self.pos = nn.Parameter(torch.randn((image_size // patch) ** 2, 12))
        self.qkv, self.out, self.head = nn.Linear(12, 36), nn.Linear(12, 12), nn.Linear(12, 5)

    def forward(self, images):
        x = self.embed(images).flatten(2).transpose(1, 2) + self.pos
        b, n, d = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, 3, 4).permute(2, 0, 3, 1, 4)
        y = ((q @ k.mT) * 4**-0.5).softmax(-1) @ v
        y = y.transpose(1, 2).reshape(b, n, d) if self.merge else y.reshape(b, n, d)
        return self.head((x + self.out(y)).mean(1))


def test_patches_are_put_together_to_the_image():
    kept = nn.Identity()
    image = torch.randn(2, 3, 8, 8)
    patches = image.unfold(2, 4, 4).unfold(3, 4, 4).permute(0, 2, 3, 1, 4, 5).reshape(2, 4, 48)
    assert FromPatches(kept, channels=3, patch=4, size=8)(patches).equal(image)


def test_channels_and_sizes_come_from_the_model():
    first = next(from_patches(PatchViT()))
    assert (first.channels, first.patch, first.side, first.width) == (3, 4, 2, 48)
    assert list(from_patches(nn.Linear(3, 3))) == []


def test_a_model_of_images_is_verified():
    report = verify(PatchViT(image_size=16))
    assert report, str(report)
    assert "it takes images: their patches are the sequence" in report.assumptions
    assert verify(PatchViT(image_size=16, merge=False)).names[0] == "heads-mixed-by-view"
