"""What a settings file may name, one line each."""

from typing import Literal

DATASETS: dict[str, str] = {
    "digits": "1,797 grey 8x8 digits of scikit-learn, 10 classes; embedded, the default",
    "fashion-mnist": "70,000 grey 28x28 clothes, 10 classes; idx or parquet files, or a download",
    "cifar10": "60,000 colour 32x32 photographs, 10 classes; parquet, cifar-10-batches-py, or a download",
    "rsna-ich": "25,000 of RSNA's brain CT slices at 224x224, haemorrhage or not; stage_2_train.csv with DICOM or PNG",
    "isic-2019": "25,331 colour skin lesions at 224x224, 8 classes; ISIC's ground truth CSV with JPEG",
    "ich-ct": "3,478 grey 128x128 brain CT slices, haemorrhage or not; parquet",
    "isic2019-ham10000": "10,015 colour 200x150 skin lesions, ISIC's 8 classes, 4 centres; parquet",
    "NAME": "a folder of that name in the data folder: parquet files, images by class, or CSV with images",
    "PATH": "your own .npz, .parquet or .csv file, or a folder of those or of images by class",
}

Augmentation = Literal["none", "crop-flip", "affine-flip"]
