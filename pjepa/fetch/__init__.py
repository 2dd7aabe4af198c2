"""Files from elsewhere: where they are kept, what there is, and how they are downloaded."""
