"""From files to a federation: images and labels, split over clients."""
